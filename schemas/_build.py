"""The build marker: says that this package is ours, whatever else is called the same.

The name check reads this file as text, so that finding somebody else's package never runs their code.
"""

DISTRIBUTION = "runlineage"
VERSION = "0.1.0"
