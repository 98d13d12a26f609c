"""The console: every session of the user in a browser; a floor above the app, which judges and undoes.

`server` is the ASGI application with the list of its endpoints, `access` the login, the others are one module a page
(`live` has the events of all sessions), `static` the pages themselves. A new page: a module here with `ENDPOINTS`, a
line in those of `server`, a module in `static/pages`. docs/console.md says what is promised.
"""
