"""Engine of the audit: views of a symbolic run, linear algebra, recipes and soundness checks."""
