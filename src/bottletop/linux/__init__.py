"""What Linux says of processes, command lines, cgroups, mounts and block devices, parsed.

Pure parsers and readers below both the collectors and attach. All of them read through `Roots`, so
the same code serves the live host, a captured tree and the fixtures of the tests.
"""
