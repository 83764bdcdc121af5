"""Commands for operators, for example `doctor`, which checks every part of a deployment. Workers do not use them."""
