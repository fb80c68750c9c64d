#include <cstdio>
#include <thread>
#include <tx8fast/embedded.hpp>

// embedded MODEL: errors, progress, a compilation from another thread, a run.
int main(int, char **words) {
    tx8fast::EmbeddedCompiler compiler;
    const std::vector<std::string> options{"--phase", "prefill", "--seq", "8", "--standalone", "--opt", "1"};
    try {
        compiler.compile("nix", "p.tx8");
    } catch (const tx8fast::Error &e) {
        std::printf("%d %s\n", e.code(), e.what());
    }
    try {
        compiler.compile(words[1], "p.tx8", options, [](std::string_view) { return false; });
    } catch (const tx8fast::Error &e) {
        std::printf("%d %s\n", e.code(), e.what());
    }
    try {
        compiler.compile(words[1], "p.tx8", options, [](std::string_view) -> bool { throw 7; });
    } catch (int thrown) {
        std::printf("thrown %d\n", thrown);
    }
    std::thread([&] {
        int events = 0;
        tx8fast::Program program = compiler.compile(words[1], "p.tx8", options, [&](std::string_view) { return ++events > 0; });
        std::vector<std::int64_t> tokens(8, 1);
        const auto outputs = program.run({{"input_ids", tx8fast::bytes_of(tokens)}});
        std::printf("%s, ran, %zu bytes of logits\n", events ? "told" : "silent", outputs.at("logits").size());
    }).join();
}
