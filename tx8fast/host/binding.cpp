// The C++ classes for Python. The interpreter is free while programs run; progress callbacks take it for a moment.
#include <pybind11/pybind11.h>

#include "tx8fast/tx8.hpp"

namespace py = pybind11;

namespace {

py::dict shown(const tx8fast::Tensor &t) {
    py::dict found;
    found["name"] = py::str(t.name.data(), t.name.size());
    found["dtype"] = py::str(t.dtype.data(), t.dtype.size());
    py::tuple shape(t.shape.size());
    for (std::size_t k = 0; k < t.shape.size(); k++) shape[k] = t.shape[k];
    found["shape"] = shape;
    found["bytes"] = t.bytes;
    return found;
}

py::list all(const std::vector<tx8fast::Tensor> &tensors) {
    py::list found;
    for (const tx8fast::Tensor &t : tensors) found.append(shown(t));
    return found;
}

tx8fast::Bytes viewed(const py::buffer_info &info) {
    return {static_cast<const std::byte *>(info.ptr), static_cast<std::size_t>(info.size * info.itemsize)};
}

py::buffer_info dense(const py::handle &given) {
    py::buffer_info info = py::cast<py::buffer>(given).request();
    py::ssize_t step = info.itemsize;
    for (py::ssize_t k = info.ndim; k-- > 0; step *= info.shape[static_cast<std::size_t>(k)])
        if (info.shape[static_cast<std::size_t>(k)] > 1 && info.strides[static_cast<std::size_t>(k)] != step)
            throw py::value_error("a buffer must be dense and row-major");
    return info;
}

py::dict run(tx8fast::Program &program, const py::dict &inputs, int threads, const py::object &progress) {
    std::map<std::string, py::buffer_info> held;
    std::map<std::string, tx8fast::Bytes> in;
    for (const auto &[name, given] : inputs) {
        const auto &info = held.emplace(py::cast<std::string>(name), dense(given)).first;
        in.emplace(info->first, viewed(info->second));
    }
    py::dict results;
    std::map<std::string, tx8fast::Room> out;
    for (const tx8fast::Tensor &t : program.outputs()) {
        py::bytearray made(std::string(t.bytes, '\0'));
        out.emplace(t.name, tx8fast::Room(reinterpret_cast<std::byte *>(PyByteArray_AsString(made.ptr())), t.bytes));
        results[py::str(t.name.data(), t.name.size())] = made;
    }
    tx8fast::RunOptions options;
    options.threads = threads;
    if (!progress.is_none())
        options.progress = [&progress](std::int64_t done, std::int64_t total) {
            py::gil_scoped_acquire held_for_a_moment;
            return !py::cast<py::object>(progress(done, total)).is(py::bool_(false));
        };
    py::gil_scoped_release released;
    program.run(in, out, options);
    py::gil_scoped_acquire held_again;
    return results;
}

}  // namespace

PYBIND11_MODULE(_program, m) {
    m.doc() = "The host library's C++ classes.";
    py::object error = py::exception<tx8fast::Error>(m, "HostError", PyExc_RuntimeError);
    static PyObject *kind = error.ptr();
    py::register_exception_translator([](std::exception_ptr p) {
        try {
            if (p) std::rethrow_exception(p);
        } catch (const tx8fast::Error &e) {
            py::object made = py::reinterpret_borrow<py::object>(kind)(e.what());
            made.attr("code") = e.code();
            PyErr_SetObject(kind, made.ptr());
        }
    });
    py::class_<tx8fast::Program>(m, "Program")
        .def(py::init([](const std::string &path) {
            py::gil_scoped_release released;
            return std::make_unique<tx8fast::Program>(path);
        }))
        .def("inputs", [](const tx8fast::Program &p) { return all(p.inputs()); })
        .def("outputs", [](const tx8fast::Program &p) { return all(p.outputs()); })
        .def("params", [](const tx8fast::Program &p) { return all(p.params()); })
        .def("set_param", [](tx8fast::Program &p, const std::string &name, const py::buffer &image) {
            const py::buffer_info info = dense(image);
            py::gil_scoped_release released;
            p.set_param(name, viewed(info));
        })
        .def("run", &run, py::arg("inputs"), py::arg("threads") = 0, py::arg("progress") = py::none())
        .def("figures", [](const tx8fast::Program &p) {
            py::dict found;
            for (const auto &[name, value] : p.figures()) found[py::str(name)] = value;
            return found;
        })
        .def("fact", [](const tx8fast::Program &p, const std::string &name) -> py::object {
            const auto found = p.fact(name);
            return found ? py::object(py::str(*found)) : py::none();
        });
}
