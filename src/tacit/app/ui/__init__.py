"""The local page, `tacit ui`: runs, what a coalition would learn, plans, and a form that starts scenarios.

Three decisions keep it small. The page is static files without a build step. Its state is its address, and the same
query goes to the server. Long work is done by processes that can be killed (`worker_process.py`).
"""
