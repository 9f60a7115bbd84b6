"""Where a lake lies: bytes under keys, on a local disk or an object store, behind one interface.

`open_storage` opens the lake's root, a `Location` names one thing in it, `lease` is a writer's lock on either kind.
"""
