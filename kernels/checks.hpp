#pragma once

#include "kernels/backend.hpp"

// What makes a call of a kernel a wrong one, in one place for every kind of device. Each throws
// CheckFailed, on the caller's thread and before anything is enqueued.
namespace train::kernels {

void check_params(const MatmulParams& params);
void check_params(const EmbeddingForwardParams& params);
void check_params(const EmbeddingBackwardParams& params);
void check_params(const NormForwardParams& params);
void check_params(const NormBackwardParams& params);
void check_params(const RopeTableParams& params);
void check_params(const RopeParams& params);
void check_params(const AttentionForwardParams& params);
void check_params(const AttentionBackwardParams& params);
void check_params(const GeluForwardParams& params);
void check_params(const GeluBackwardParams& params);
void check_params(const SwigluForwardParams& params);
void check_params(const SwigluBackwardParams& params);
void check_params(const SigmoidGateForwardParams& params);
void check_params(const SigmoidGateBackwardParams& params);
void check_params(const HeadLossParams& params);
void check_params(const ResidualAddParams& params);
void check_params(const TreeAddParams& params);
void check_params(const ScaleAddParams& params);
void check_params(const MaskSignParams& params);
void check_params(const FillParams& params);
void check_params(const CopyParams& params);
void check_params(const CountNonfiniteParams& params);
void check_params(const PackBf16Params& params);
void check_params(const UnpackBf16Params& params);
void check_params(const RowSquareSumsParams& params);
void check_params(const TreeSumParams& params);
void check_params(const ClipScaleParams& params);
void check_params(const AdamwParams& params);
void check_params(const AdemamixParams& params);
void check_params(const DanaParams& params);
void check_params(const MuonMomentumParams& params);
void check_params(const MuonNormaliseParams& params);
void check_params(const BlendBf16Params& params);
void check_params(const MuonApplyParams& params);

/// For kernels that are compiled for heads of up to `largest` columns.
void require_head_dim(const char* kernel, std::int64_t head_dim, std::int64_t largest);

}  // namespace train::kernels
