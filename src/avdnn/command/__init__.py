"""What the command line needs beside the commands themselves."""
