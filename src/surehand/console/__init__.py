"""The console: all sessions of the user in a browser. It sits above the app, which does all judging and undoing.

`server` is the ASGI application and lists all endpoints, `access` is the login, every other module serves one page
(`live`: the events of all sessions), and `static` holds the pages. To add a page: a module here with `ENDPOINTS`, a
line in `ENDPOINTS` of `server`, a module in `static/pages`. docs/console.md describes what the console guarantees.
"""
