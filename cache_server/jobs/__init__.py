"""Jobs: which keys the processes of one name asked for, so that the next host can fetch them all beforehand."""
