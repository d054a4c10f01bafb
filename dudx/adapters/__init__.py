"""Adapters that compute the derivatives of scripts written for other packages, after one added line.

An adapter is imported by name, `import dudx.adapters.deepxde as faster`; none of them is imported with dudx, and the
packages they are for are no requirement of it.
"""
