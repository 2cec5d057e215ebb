"""Any command run, relayed, sampled and kept. Needs psutil and prometheus-client; knows no trainer."""
