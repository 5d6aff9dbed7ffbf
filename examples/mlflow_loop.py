"""A loop with its own MLflow calls. The layer adds what it knows under `lineage/`, beside them."""

import mlflow
from common import parts, update

import lineage

mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("examples")
config = {"lr": 1e-2, "grad_clip": 1.0}
model, optimizer, scheduler, loader = parts(config["lr"])

with mlflow.start_run() as run:
    mlflow.log_params(config)
    rec = lineage.attach(
        run, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, config=config
    )
    for step, batch in enumerate(loader, start=1):
        with rec.step(step, batch) as st:
            loss = update(model, optimizer, scheduler, batch, config["grad_clip"])
            st.loss(loss)
        mlflow.log_metric("loss", loss.item(), step=step)
        if step == 20:
            break
    rec.close()  # before the run ends, so that the page is complete
print("open the page: mlflow ui --backend-store-uri sqlite:///mlflow.db")
