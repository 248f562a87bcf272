#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/generate/sampling.hpp"
#include "engine/model/model.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Continues texts token by token with a trained model, several of them at a time. A plain tool
/// outside training: it blocks.
///
/// Keys and values of what has been read are kept, so a new token costs its own row alone. A text
/// that is longer than the context is continued after its last `context` tokens: each new one then
/// costs a pass over all of them.
///
/// Invariant GEN-1: the log-probability of a token has the bits that the forward pass of training
/// computes for it over the finished text (as far as that fits the context), alone and in any
/// batch: kernels compute a row from that row and what it sees, in one order (on the CPU). With
/// CacheForm::latent it has those bits in the first pass over a text alone, and in all passes the
/// same ones alone and in any batch.
///
/// REQUIRES: kernels of the host. Ownership: owns its activations; borrows the weights (flat, one
/// pointer per unit).
class TextGenerator {
 public:
  struct Sizes {
    std::int64_t context = 0;  ///< Tokens that the model sees at most.
    std::int64_t texts = 1;    ///< Texts continued at a time; more wait for a place.
    CacheForm cache = CacheForm::expanded;
  };
  TextGenerator(const kernels::KernelTable& kernels, const ModelSpec& spec, const Sizes& sizes,
                std::vector<const float*> weights);

  using Tokens = std::vector<std::int32_t>;
  struct Request {
    std::vector<Tokens> prompts;  ///< Each has at least one token.
    std::int64_t tokens = 0;      ///< New tokens of each text.
    std::int64_t vocab = 0;       ///< Ids the tokenizer knows; the rest is padding.
    SamplingOptions sampling;     ///< Equal for all texts: equal prompts give equal texts.
  };
  struct NewToken {
    std::size_t text = 0;  ///< Index of the prompt.
    std::int32_t token = 0;
    float log_probability = 0.0F;  ///< Natural, at temperature 1, of the model's whole vocabulary.
  };
  /// Receives each new token, in order within each text; false ends the text.
  using OnToken = std::function<bool(const NewToken& token)>;

  void generate(kernels::Stream& stream, const Request& request, const OnToken& on_token);

  /// The log-probability of each token of a text but the first, given those before it, by the
  /// forward pass of training. REQUIRES: at most `context` tokens.
  [[nodiscard]] std::vector<float> log_probabilities(kernels::Stream& stream, const Tokens& text);

 private:
  struct Text {
    std::size_t index = 0;   ///< Index of the prompt.
    std::int32_t place = 0;  ///< Place in the caches.
    Tokens tokens;
    std::int64_t made = 0;
    std::int64_t kept = 0;  ///< Tokens whose keys and values are kept; 0: none are of use.
  };
  /// Rows of one forward pass, and the texts whose next tokens their logits decide.
  struct Pass {
    Lane lane;
    std::vector<Text*> texts;
    std::vector<std::int64_t> last_rows;  ///< One per text.
  };

  [[nodiscard]] UnitMemory memory_of(std::size_t unit) const;
  void add_prefix(const Text& text);
  /// `before`: rows of the prefix in the pass, which have no tokens.
  void add_row(Pass& pass, const Text& text, std::int64_t token, std::int64_t position,
               std::int64_t before);
  [[nodiscard]] Pass fill_pass(std::span<Text* const> waiting);
  [[nodiscard]] Pass extend_pass(std::span<Text* const> texts);
  void forward(kernels::Stream& stream, const Lane& lane);
  void compute_logits(kernels::Stream& stream, const Pass& pass);
  void choose(kernels::Stream& stream, const Pass& pass, const Request& request,
              std::vector<NewToken>& chosen);
  [[nodiscard]] std::vector<NewToken> step(kernels::Stream& stream, std::vector<Text>& texts,
                                           const Request& request);

  const kernels::KernelTable* kernels_;
  Sizes sizes_;
  Model model_;
  std::vector<const float*> weights_;
  std::int64_t rows_ = 0;                        ///< Rows of the pass under construction.
  kernels::Buffer tokens_, positions_, places_;  ///< [most rows].
  kernels::Buffer logits_, targets_, log_probabilities_;
};

}  // namespace train::engine
