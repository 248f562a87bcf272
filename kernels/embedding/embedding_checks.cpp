#include "kernels/checks.hpp"
#include "kernels/embedding/embedding.hpp"

namespace train::kernels {

void check_params(const EmbeddingForwardParams& params) {
  require_pointers("embedding_forward", params.rows * params.cols, params.tokens, params.weight,
                   params.out);
}

void check_params(const EmbeddingBackwardParams& params) {
  require_pointers("embedding_backward", params.rows * params.cols, params.tokens, params.dout);
  require_pointers("embedding_backward", params.vocab * params.cols, params.dweight);
}

}  // namespace train::kernels
