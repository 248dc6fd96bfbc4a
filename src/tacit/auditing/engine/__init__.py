"""From the messages of a symbolic run to what follows: views, linear algebra, recipes and soundness checks."""
