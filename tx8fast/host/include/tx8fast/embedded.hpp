// The compiler inside this process, by a Python interpreter: the interface of tx8fast::Compiler, for hosts that want no second process, or
// are Python themselves. It needs pybind11 and the flags of `python3-config --embed`; tx8fast must be importable.
//
// Differences: what crashes there crashes here; compilations of all threads take turns, since they hold the interpreter's lock; a callback that returns
// false ends the compilation at its next step. The interpreter is started once and never ended. Runs of programs hold no lock of it.
#ifndef TX8FAST_EMBEDDED_HPP
#define TX8FAST_EMBEDDED_HPP
#include <pybind11/embed.h>

#include <mutex>

#include "tx8.hpp"

namespace tx8fast {

class EmbeddedCompiler : public Compiling<EmbeddedCompiler> {
public:
    EmbeddedCompiler() {
        static std::once_flag once;
        std::call_once(once, [] {
            if (Py_IsInitialized()) return;  // the host is Python
            pybind11::initialize_interpreter(false);
            PyEval_SaveThread();  // whoever compiles takes the lock
        });
    }

private:
    friend class Compiling<EmbeddedCompiler>;

    std::string call(const char *command, const std::vector<std::string> &words, const Progress &progress) {
        pybind11::gil_scoped_acquire held;
        std::exception_ptr thrown;
        bool ended = false;
        try {
            pybind11::list arguments;
            for (const std::string &word : words) arguments.append(word);
            const pybind11::cpp_function event([&](const std::string &json) {
                try {
                    ended = ended || (progress && !progress(json));
                } catch (...) {
                    thrown = std::current_exception();
                    ended = true;
                }
                if (ended) throw pybind11::value_error("the host's callback asked for it");
            });
            const auto answer = pybind11::module_::import("tx8fast.cli.serve").attr("once")(command, arguments, event);
            const int code = answer["exit_code"].cast<int>();
            if (thrown) std::rethrow_exception(thrown);
            if (ended) throw Error(TX8_ERROR_CANCELLED, "compiling: ended, the callback asked for it");
            if (code != 0) throw Error(TX8_ERROR_COMPILE, answer["error"].cast<std::string>());
            return answer["result"].cast<std::string>();
        } catch (const pybind11::error_already_set &e) {
            if (thrown) std::rethrow_exception(thrown);
            if (ended) throw Error(TX8_ERROR_CANCELLED, "compiling: ended, the callback asked for it");
            throw Error(TX8_ERROR_WORKER, std::string("compiling: ") + e.what());
        }
    }
};

}  // namespace tx8fast
#endif
