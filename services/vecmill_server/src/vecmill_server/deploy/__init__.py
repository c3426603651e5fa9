"""Files that run a server elsewhere, written from one configuration file: `vecmill deploy render`."""
