"""Tables that several views read: who reads them, and how a definition that replaces another comes to share them."""
