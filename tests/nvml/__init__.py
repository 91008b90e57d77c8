"""A simulated libnvidia-ml.so.1, and a child process that reads it with the real nvidia-ml-py."""
