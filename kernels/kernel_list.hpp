#pragma once

#include "kernels/activation/activation.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/rope.hpp"
#include "kernels/convert.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"

/// Every kernel, a line each: its name and its params. From this list alone are made the table of a
/// device (backend.hpp), both of its initialisers, and the checks of all params (checks.hpp). A
/// kernel's functions are declared in its family's header, in namespaces cpu and cuda.
#define TRAIN_KERNELS(KERNEL)                              \
  KERNEL(matmul, MatmulParams)                             \
  KERNEL(embedding_forward, EmbeddingForwardParams)        \
  KERNEL(embedding_backward, EmbeddingBackwardParams)      \
  KERNEL(norm_forward, NormForwardParams)                  \
  KERNEL(norm_backward, NormBackwardParams)                \
  KERNEL(rope_table, RopeTableParams)                      \
  KERNEL(rope_apply, RopeParams)                           \
  KERNEL(attention_forward, AttentionForwardParams)        \
  KERNEL(attention_backward, AttentionBackwardParams)      \
  KERNEL(gelu_forward, GeluForwardParams)                  \
  KERNEL(gelu_backward, GeluBackwardParams)                \
  KERNEL(swiglu_forward, SwigluForwardParams)              \
  KERNEL(swiglu_backward, SwigluBackwardParams)            \
  KERNEL(sigmoid_gate_forward, SigmoidGateForwardParams)   \
  KERNEL(sigmoid_gate_backward, SigmoidGateBackwardParams) \
  KERNEL(head_loss, HeadLossParams)                        \
  KERNEL(residual_add, ResidualAddParams)                  \
  KERNEL(tree_add, TreeAddParams)                          \
  KERNEL(scale_add, ScaleAddParams)                        \
  KERNEL(mask_sign, MaskSignParams)                        \
  KERNEL(pack_bf16, PackBf16Params)                        \
  KERNEL(unpack_bf16, UnpackBf16Params)                    \
  KERNEL(fill, FillParams)                                 \
  KERNEL(copy, CopyParams)                                 \
  KERNEL(count_nonfinite, CountNonfiniteParams)            \
  KERNEL(row_square_sums, RowSquareSumsParams)             \
  KERNEL(tree_sum, TreeSumParams)                          \
  KERNEL(clip_scale, ClipScaleParams)                      \
  KERNEL(adamw_update, AdamwParams)                        \
  KERNEL(ademamix_update, AdemamixParams)                  \
  KERNEL(dana_update, DanaParams)                          \
  KERNEL(muon_momentum, MuonMomentumParams)                \
  KERNEL(muon_normalise, MuonNormaliseParams)              \
  KERNEL(blend_bf16, BlendBf16Params)                      \
  KERNEL(muon_apply, MuonApplyParams)
