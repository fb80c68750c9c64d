// Compile a language model and run it, from C++: cpp_host MODEL [PYTHON]
//
// MODEL is a Hugging Face directory with weights in bfloat16; PYTHON an interpreter that has tx8fast, unless `tx8fast` is on PATH.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <tx8fast/tx8.hpp>

namespace {

float f32_of_bf16(const std::byte *at) {
    std::uint16_t half;
    std::memcpy(&half, at, sizeof half);
    const std::uint32_t word = static_cast<std::uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

int run(const std::string &model, const std::vector<std::string> &worker) {
    tx8fast::Compiler compiler(worker);
    int events = 0;
    tx8fast::Program program = compiler.compile(model, "model.tx8", {"--phase", "prefill", "--seq", "8", "--standalone"},
                                                [&](std::string_view) { return ++events > 0; });
    std::printf("compiled%s\n", events ? ", and told how far it was" : "");
    for (const auto &[name, value] : program.figures()) std::printf("%-18s %.0f\n", name.c_str(), value);

    std::vector<std::int64_t> tokens(static_cast<std::size_t>(program.input("input_ids").elements()));
    for (std::size_t k = 0; k < tokens.size(); k++) tokens[k] = static_cast<std::int64_t>(k + 1);
    std::int64_t launches = 0;
    tx8fast::RunOptions options;
    options.progress = [&](std::int64_t done, std::int64_t) { return (launches = done) > 0; };
    const auto outputs = program.run({{"input_ids", tx8fast::bytes_of(tokens)}}, options);

    const tx8fast::Tensor logits = program.output("logits");  // bf16 [1, tokens, words]
    const std::size_t words = static_cast<std::size_t>(logits.shape[2]), last = static_cast<std::size_t>(logits.elements()) - words;
    const std::byte *row = outputs.at("logits").data() + 2 * last;
    std::size_t best = 0;
    for (std::size_t k = 0; k < words; k++)
        if (f32_of_bf16(row + 2 * k) > f32_of_bf16(row + 2 * best)) best = k;
    std::printf("ran %lld launches; the next token is %zu\n", static_cast<long long>(launches), best);
    return 0;
}

}  // namespace

int main(int count, char **words) {
    if (count < 2) return std::fprintf(stderr, "usage: cpp_host MODEL [PYTHON]\n"), 2;
    try {
        return run(words[1], count > 2 ? std::vector<std::string>{words[2], "-m", "tx8fast", "serve", "--stdio"} : std::vector<std::string>{});
    } catch (const tx8fast::Error &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
