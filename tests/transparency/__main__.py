"""`python -m tests.transparency`."""

import signal
import sys

from .command import main

# By an exception, so that the session under way ends too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
raise SystemExit(main())
