"""The command line: one file a group of commands, `output` renders, `options` has what all share. No logic here."""
