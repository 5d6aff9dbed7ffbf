"""The post-mortem of one incident, as Markdown and as one self-contained HTML page.

What the layer knows is made anew each time; what people wrote in the marked parts of the Markdown is kept.
"""

from __future__ import annotations

from .files import Foreign, Kept, write
from .given import Given
from .page import sections, title

__all__ = ["Foreign", "Given", "Kept", "sections", "title", "write"]
