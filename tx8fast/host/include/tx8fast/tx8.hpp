// tx8fast host library for C++17: programs, runs and the compiler as classes. Ownership, threads, errors and units are those of tx8.h.
//
// Everything that fails throws tx8fast::Error; `code()` is the TX8_ERROR_ number. A program is moved, not copied. Names and shapes that it shows
// live as long as it. Exceptions of a callback end the call and come out of it.
#ifndef TX8FAST_TX8_HPP
#define TX8FAST_TX8_HPP
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tx8.h"

namespace tx8fast {

class Error : public std::runtime_error {
public:
    Error(int code, const std::string &text) : std::runtime_error(text), code_(code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

namespace detail {
inline void check(int status) {
    if (status != TX8_OK) throw Error(status, tx8_last_error());
}
}  // namespace detail

// Elements that lie together and belong to somebody else, as std::span of C++20.
template <class T>
class Span {
public:
    constexpr Span() noexcept = default;
    constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <class C, class = std::enable_if_t<std::is_convertible_v<decltype(std::declval<C &>().data()), T *>>>
    constexpr Span(C &&all) noexcept : data_(all.data()), size_(all.size()) {}
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t at) const noexcept { return data_[at]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

using Bytes = Span<const std::byte>;
using Room = Span<std::byte>;
using Buffer = std::vector<std::byte>;

// The bytes of a container of numbers.
template <class C>
Bytes bytes_of(const C &all) {
    return {reinterpret_cast<const std::byte *>(all.data()), all.size() * sizeof *all.data()};
}
template <class C>
Room room_of(C &all) {
    return {reinterpret_cast<std::byte *>(all.data()), all.size() * sizeof *all.data()};
}

struct Tensor {
    std::string_view name, dtype;
    Span<const std::int64_t> shape;
    std::size_t bytes = 0;

    std::int64_t elements() const {
        std::int64_t n = 1;
        for (std::int64_t size : shape) n *= size;
        return n;
    }
};

struct RunOptions {
    int threads = 0;                                          // 0: one per processor
    std::function<bool(std::int64_t, std::int64_t)> progress;  // launches done and all; false ends the run
};

class Program {
public:
    explicit Program(const std::string &path) {
        tx8_program *made = nullptr;
        detail::check(tx8_open(path.c_str(), &made));
        program_.reset(made);
    }

    std::vector<Tensor> inputs() const { return all(tx8_input_count, tx8_input_at); }
    std::vector<Tensor> outputs() const { return all(tx8_output_count, tx8_output_at); }
    std::vector<Tensor> params() const { return all(tx8_param_count, tx8_param_at); }
    Tensor input(const std::string &name) const { return one(tx8_input_named, name); }
    Tensor output(const std::string &name) const { return one(tx8_output_named, name); }

    // The image of a parameter that is not in the file, as it lies in DDR.
    void set_param(const std::string &name, Bytes image) {
        detail::check(tx8_set_param(program_.get(), name.c_str(), image.data(), image.size()));
    }

    // Execute; results go into the rooms given, by name.
    void run(const std::map<std::string, Bytes> &inputs, const std::map<std::string, Room> &outputs, const RunOptions &options = {}) {
        std::vector<tx8_input> in;
        std::vector<tx8_output> out;
        for (const auto &[name, data] : inputs) in.push_back({name.c_str(), data.data(), data.size()});
        for (const auto &[name, room] : outputs) out.push_back({name.c_str(), room.data(), room.size(), nullptr});
        Watch watch{options.progress, nullptr};
        const tx8_run_options chosen{sizeof chosen, options.threads, options.progress ? &Watch::told : nullptr, &watch};
        const int status = tx8_run(program_.get(), in.data(), in.size(), out.data(), out.size(), &chosen);
        if (watch.thrown) std::rethrow_exception(watch.thrown);
        detail::check(status);
    }

    // Execute; returns all outputs by name.
    std::map<std::string, Buffer> run(const std::map<std::string, Bytes> &inputs, const RunOptions &options = {}) {
        std::map<std::string, Buffer> made;
        std::map<std::string, Room> rooms;
        for (const Tensor &t : outputs()) {
            Buffer &own = made[std::string(t.name)];
            own.resize(t.bytes);
            rooms.emplace(t.name, Room(own));
        }
        run(inputs, rooms, options);
        return made;
    }

    double figure(const std::string &name) const {
        double value = 0;
        detail::check(tx8_figure(program_.get(), name.c_str(), &value));
        return value;
    }
    std::map<std::string, double> figures() const {
        std::map<std::string, double> found;
        for (std::size_t k = 0; k < tx8_figure_count(program_.get()); k++) {
            const char *name = nullptr;
            double value = 0;
            detail::check(tx8_figure_at(program_.get(), k, &name, &value));
            found[name] = value;
        }
        return found;
    }
    std::optional<std::string> fact(const std::string &name) const {
        const char *found = tx8_fact(program_.get(), name.c_str());
        return found ? std::optional<std::string>(found) : std::nullopt;
    }

    tx8_program *get() const noexcept { return program_.get(); }

private:
    struct Close {
        void operator()(tx8_program *program) const noexcept { tx8_close(program); }
    };
    struct Watch {
        const std::function<bool(std::int64_t, std::int64_t)> &progress;
        std::exception_ptr thrown;
        static int told(void *user, std::int64_t done, std::int64_t total) noexcept {
            auto *self = static_cast<Watch *>(user);
            try {
                return self->progress(done, total) ? 0 : 1;
            } catch (...) {
                self->thrown = std::current_exception();
                return 1;
            }
        }
    };

    static Tensor shown(const tx8_tensor &t) { return {t.name, t.dtype, {t.shape, static_cast<std::size_t>(t.rank)}, t.bytes}; }
    std::vector<Tensor> all(std::size_t (*count)(const tx8_program *), int (*at)(const tx8_program *, std::size_t, tx8_tensor *)) const {
        std::vector<Tensor> found;
        for (std::size_t k = 0; k < count(program_.get()); k++) {
            tx8_tensor t;
            detail::check(at(program_.get(), k, &t));
            found.push_back(shown(t));
        }
        return found;
    }
    Tensor one(int (*named)(const tx8_program *, const char *, tx8_tensor *), const std::string &name) const {
        tx8_tensor t;
        detail::check(named(program_.get(), name.c_str(), &t));
        return shown(t);
    }

    std::unique_ptr<tx8_program, Close> program_;
};

// What compilers have in common; `Own::call` does a command of the command line.
template <class Own>
class Compiling {
public:
    // A line of JSON about how far the work is; false ends the compilation.
    using Progress = std::function<bool(std::string_view json)>;

    // Compile a model into a file and open it. options: those of `tx8fast compile`, as {"--phase", "prefill", "--seq", "16"}.
    Program compile(const std::string &model, const std::string &output, const std::vector<std::string> &options = {},
                    const Progress &progress = {}) {
        std::vector<std::string> words{model, "-o", output};
        words.insert(words.end(), options.begin(), options.end());
        static_cast<Own *>(this)->call("compile", words, progress);
        return Program(output);
    }

    // What `tx8fast check MODEL --json` prints: whether a model can be compiled, and what it would take.
    std::string check(const std::string &model, const std::vector<std::string> &options = {}, const Progress &progress = {}) {
        std::vector<std::string> words{model};
        words.insert(words.end(), options.begin(), options.end());
        return static_cast<Own *>(this)->call("check", words, progress);
    }
};

// The compiler, in a process of its own: what crashes or is killed there is an Error here, and the next call starts another process.
class Compiler : public Compiling<Compiler> {
public:
    // command: what starts a worker, "tx8fast serve --stdio" on PATH unless given.
    explicit Compiler(const std::vector<std::string> &command = {}) {
        const std::vector<const char *> words = pointers(command);
        tx8_worker *made = nullptr;
        detail::check(tx8_worker_open(words.data(), &made));
        worker_.reset(made);
    }

private:
    friend class Compiling<Compiler>;
    struct Close {
        void operator()(tx8_worker *worker) const noexcept { tx8_worker_close(worker); }
    };
    struct Watch {
        const Progress &progress;
        std::exception_ptr thrown;
        static int told(void *user, const char *json) noexcept {
            auto *self = static_cast<Watch *>(user);
            try {
                return self->progress(json) ? 0 : 1;
            } catch (...) {
                self->thrown = std::current_exception();
                return 1;
            }
        }
    };

    static std::vector<const char *> pointers(const std::vector<std::string> &words) {
        std::vector<const char *> found;
        for (const std::string &word : words) found.push_back(word.c_str());
        found.push_back(nullptr);
        return found;
    }
    std::string call(const char *command, const std::vector<std::string> &words, const Progress &progress) {
        Watch watch{progress, nullptr};
        const char *result = nullptr;
        const int status =
            tx8_worker_call(worker_.get(), command, pointers(words).data(), progress ? &Watch::told : nullptr, &watch, &result);
        if (watch.thrown) std::rethrow_exception(watch.thrown);
        detail::check(status);
        return result ? result : "";
    }

    std::unique_ptr<tx8_worker, Close> worker_;
};

}  // namespace tx8fast
#endif
