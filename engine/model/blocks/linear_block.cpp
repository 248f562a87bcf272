#include "engine/model/blocks/linear_block.hpp"

namespace train::engine {

LinearBlock::LinearBlock(const BlockContext& context, const std::string& name, std::int64_t inputs,
                         std::int64_t outputs, InitKind init)
    : kernels_(&context.kernels), inputs_(inputs), outputs_(outputs) {
  weight_ = context.parameters.add({.name = context.prefix + name + ".weight",
                                    .rows = outputs,
                                    .cols = inputs,
                                    .group = ParameterGroup::decay,
                                    .init = init});
}

void LinearBlock::forward(const BlockCall& call, ConstElements x, Elements y,
                          std::int64_t y_stride) const {
  kernels_->matmul(call.stream, {.a = x,
                                 .b = call.weights + weight_,
                                 .c = y,
                                 .m = call.lane.rows(),
                                 .n = outputs_,
                                 .k = inputs_,
                                 .lda = inputs_,
                                 .ldb = inputs_,
                                 .ldc = y_stride,
                                 .transpose_b = true,
                                 .dtype = x.dtype,
                                 .output_dtype = y.dtype});
}

void LinearBlock::backward_input(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                 Elements dx, bool accumulate) const {
  kernels_->matmul(call.stream, {.a = dy,
                                 .b = call.weights + weight_,
                                 .c = dx,
                                 .m = call.lane.rows(),
                                 .n = inputs_,
                                 .k = outputs_,
                                 .lda = dy_stride,
                                 .ldb = inputs_,
                                 .ldc = inputs_,
                                 .accumulate = accumulate,
                                 .dtype = dy.dtype,
                                 .output_dtype = dx.dtype});
}

void LinearBlock::backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                                  ConstElements x) const {
  kernels_->matmul(call.stream, {.a = dy,
                                 .b = x,
                                 .c = call.gradient + weight_,
                                 .m = outputs_,
                                 .n = inputs_,
                                 .k = call.lane.rows(),
                                 .lda = dy_stride,
                                 .ldb = inputs_,
                                 .ldc = inputs_,
                                 .transpose_a = true,
                                 .dtype = x.dtype});
}

}  // namespace train::engine
