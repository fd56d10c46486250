// A causal transformer learns a text byte by byte, then writes some.
//
//   tiny_gpt            a nursery rhyme, for a few seconds
//   tiny_gpt FILE [STEPS]
#include <lockstep/lockstep.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tf = lockstep;

constexpr const char* kRhyme =
    "This is the house that Jack built. This is the malt that lay in the house that Jack built. This is the "
    "rat that "
    "ate the malt that lay in the house that Jack built. This is the cat that killed the rat that ate the "
    "malt that "
    "lay in the house that Jack built. ";
constexpr int64_t kContext = 32;

int main(int argc, char** argv) {
  std::string text;
  if (argc > 1) {
    std::ifstream file(argv[1], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
    if (text.size() <= static_cast<size_t>(kContext)) {
      std::fprintf(stderr, "%s cannot be read or is too short\n", argv[1]);
      return 1;
    }
  } else {
    for (int i = 0; i < 20; ++i) text += kRhyme;
  }

  // Blocks of the text, and the same blocks one byte later: what follows each byte.
  const auto blocks = [&](size_t shift) {
    const int64_t count = (static_cast<int64_t>(text.size()) - 1) / kContext;
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < static_cast<size_t>(count * kContext); ++i)
      tokens.push_back(static_cast<unsigned char>(text[i + shift]));
    return tf::Tensor::from(tokens, {count, kContext});
  };

  tf::random::set_seed(1);
  const tf::keras::Model model =
      tf::keras::applications::gpt_tiny({.context = kContext, .dim = 64, .depth = 2, .heads = 4});
  model.compile({.optimizer = tf::keras::optimizers::AdamW({.learning_rate = 3e-3}),
                 .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const int64_t steps = argc > 2 ? std::atoi(argv[2]) : 50;
  const tf::keras::History history =
      model.fit(blocks(0), blocks(1), {.batch_size = 16, .epochs = 4, .steps_per_epoch = steps});

  // Always the likeliest next byte.
  std::string written = "This is the ";
  while (written.size() < 120) {
    const size_t seen = std::min(written.size(), static_cast<size_t>(kContext));
    std::vector<int32_t> tokens;
    for (const char c : written.substr(written.size() - seen))
      tokens.push_back(static_cast<unsigned char>(c));
    const auto length = static_cast<int64_t>(seen);
    const tf::Tensor logits = model(tf::Tensor::from(tokens, {1, length}));
    const tf::Tensor last = tf::slice(logits, {0, length - 1, 0}, {1, 1, -1});
    written += static_cast<char>(tf::argmax(last).item<int64_t>());
  }
  std::printf("%s\n", written.c_str());
  return history["loss"].back() < history["loss"].front() ? 0 : 1;
}
