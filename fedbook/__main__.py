"""``python -m fedbook`` is the ``fedbook`` command."""

import sys

from fedbook.command import main

sys.exit(main())
