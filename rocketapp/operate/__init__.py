"""How a running app is watched and operated: what is said of it, over HTTP and by `rocketapp doctor`."""
