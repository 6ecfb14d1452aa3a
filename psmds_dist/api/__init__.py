"""What users call: estimators, whole runs, where they begin, results, reports and pictures."""
