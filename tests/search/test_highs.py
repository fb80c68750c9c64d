"""The solver of integer programs says nothing on the output of the process that uses it."""

from tx8fast import highs


def test_nothing_is_printed(capfd):
    solver = highs.solver({"time_limit": 1.0})
    solver.addVar(0.0, 1.0)
    solver.run()
    assert solver.getOptionValue("time_limit")[1] == 1.0
    assert capfd.readouterr() == ("", "")
