"""The same derivatives inside scripts written for other packages: one line, and nothing else of the script changes.

An adapter is imported by name, `import dudx.adapters.deepxde as faster`; none of them is imported with dudx, and the
packages they are for are no requirement of it.
"""
