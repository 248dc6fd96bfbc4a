"""The local page, `tacit ui`: runs, what a coalition would learn, plans, and a form that starts scenarios.

Three things keep it small. The page is files that a browser reads as they are. Its state is its address, which is also
what the server is asked. And whatever may take long is done by processes that can be ended (`worker.py`).
"""
