"""The functions of the CT vector opcodes by name, and what each costs.

May import: nothing. Must not: know operand forms or memory.
Source: TX8 hardware manual 6.3, 9.2. What they compute is in `host/csrc/loops.h`.
"""

#: (opcode, name, cost factor)
UNARY = (
    (0, "abs", "arithmetic"),
    (1, "recip", "division"),
    (2, "square", "arithmetic"),
    (3, "sqrt", "division"),
    (4, "rsqrt", "division"),
    (5, "neg", "arithmetic"),
    (98, "log2", "transcendental"),
    (99, "ln", "two_step"),
    (100, "pow2", "transcendental"),
    (101, "exp", "two_step"),
    (102, "exp_lp", "transcendental"),
    (103, "sin", "two_step"),
    (104, "cos", "two_step"),
    (105, "tanh", "transcendental"),
    (106, "sigmoid", "transcendental"),
    (107, "relu", "arithmetic"),
    (108, "satrelu", "arithmetic"),
    (109, "leakyrelu", "arithmetic"),
    (110, "softplus", "two_step"),
)

#: (first opcode, name, cost factor); forms VV, VS, VuV, VuV loop follow each other
BINARY = (
    (6, "max", "arithmetic"),
    (10, "min", "arithmetic"),
    (14, "add", "arithmetic"),
    (18, "sub", "arithmetic"),
    (22, "mul", "arithmetic"),
    (26, "div", "division"),
)

#: (first opcode, name); eight forms follow each other
RELATION = ((30, "eq"), (38, "ne"), (46, "ge"), (54, "gt"), (62, "le"), (70, "lt"))

LOGIC = ("and", "or", "xor")
