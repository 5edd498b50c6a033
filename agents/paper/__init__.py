"""The claims of the DL2 paper, tested: what is run for them, what the runs leave, and the page that compares."""
