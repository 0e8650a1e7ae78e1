"""``python -m streams.cold``."""

import sys

from streams.cold.program import main

sys.exit(main())
