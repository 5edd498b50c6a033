"""The leaderboard: schedulers on frozen scenarios, one entry file per pair, and pages made from the entries alone.

| module | what it does |
|---|---|
| `selection` | which schedulers and scenarios are meant |
| `code_digest` | a digest of the code that a result depends on |
| `cell` | runs one scheduler on one scenario and makes its entry |
| `entry` | the entry file: fields, reading with checks, writing |
| `pool` | runs tasks in processes of their own |
| `run` | runs all cells that have no entry yet |
| `board` | puts entries together: what fits, ranks, ratios, wins |
| `pages` | the board as Markdown and HTML |
| `verify` | runs a sample of an entry again |
"""
