"""The console: every session of the user in a browser; a floor above the app, which judges and undoes.

`server` is the ASGI application, `access` the login, `feed` the events of all sessions, `api` one module a page,
`static` the pages themselves. docs/console.md says what is promised.
"""
