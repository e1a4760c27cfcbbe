"""The same rounds on other engines: messages as bytes, nodes that hold clients, and whoever carries between them.

``remote`` drives any algorithm over any transport; ``flower`` is Flower's deployment engine as one.
"""

from fedbook.engines.messages import BrokenMessage, pack, unpack
from fedbook.engines.node import Node
from fedbook.engines.remote import InMemory, Remote, Transport

__all__ = ["BrokenMessage", "InMemory", "Node", "Remote", "Transport", "pack", "unpack"]
