// Read from file://, a browser starts no Worker, and the search runs in one. There, an invisible frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      const address = new URL(url, location.href).href.replace(/&/g, "&amp;").replace(/"/g, "&quot;");
      this.frame.srcdoc =
        "<script>self.postMessage = (data) => parent.postMessage(data, '*')<\/script>" +
        `<script src="${address}"><\/script>`;
      this.ready = new Promise((done) => this.frame.addEventListener("load", done));
      window.addEventListener("message", (e) => {
        if (e.source !== this.frame.contentWindow) return;
        const event = new MessageEvent("message", { data: e.data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      });
      document.body.appendChild(this.frame);
    }
    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })),
      );
    }
    terminate() {
      this.frame.remove();
    }
  };
}
