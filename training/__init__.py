"""How the bundled nano pair is made: data, PyTorch model, trainers, export, evaluation.

Never imported by `ds4chat`. PyTorch is not a dependency of the project: see requirements.txt.
"""
