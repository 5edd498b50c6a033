"""Comparing the speed models with measured step times.

Readers for measurements that a user has (`readers`), the models as linear forms of constants (`forms`), their fit
(`fitting`), cross-validation (`folds`, `validation`), and what is printed, stored and drawn (`report`, `plots`).
"""
