"""Functions and classes that users call: aggregate, Federation, audit, plan, join. Each audits its settings first."""
