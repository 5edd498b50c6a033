"""The leaderboard: schedulers on frozen scenarios, one entry file per pair, and pages made from the entries alone.

| module | what it does |
|---|---|
| `selection` | which schedulers and scenarios are meant |
| `code_digest` | a digest of the code that a result depends on |
| `cell` | runs one scheduler on one scenario and makes its entry |
| `json_file` | JSON files that are written whole and read with checks |
| `entry` | the entry file: fields, reading with checks, writing |
| `limits` | the file of a scenario's limits: lower bounds, and what a search reached |
| `limits_cell` | works out the limits of a scenario |
| `pool` | runs tasks in processes of their own |
| `run` | runs all cells that have no file yet |
| `folder` | reads a folder of such files |
| `board` | puts entries together: what fits, ranks, ratios, wins |
| `headroom` | what is left to win: the best scheduler beside the limits |
| `markdown`, `html` | the board as pages |
| `build` | from folders of entries to the pages |
| `verify` | runs a sample of an entry again |
"""
