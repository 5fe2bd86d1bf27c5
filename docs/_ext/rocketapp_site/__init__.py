"""What the site has beside the written pages: a reference made from the code, the navigation, and llms.txt."""
