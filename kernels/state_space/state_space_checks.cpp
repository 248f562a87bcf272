#include "kernels/checks.hpp"
#include "kernels/state_space/causal_conv.hpp"
#include "kernels/state_space/gated_norm.hpp"
#include "kernels/state_space/head_scan.hpp"
#include "kernels/state_space/selective_scan.hpp"

namespace train::kernels {
namespace {

void require_rows(const char* kernel, const DocumentRows& rows) {
  TRAIN_CHECK(rows.sequences >= 0 && rows.seq_len >= 0, "{}: {} sequences of {} rows", kernel,
              rows.sequences, rows.seq_len);
}

void require_states(const char* kernel, const DocumentRows& rows, const TextStates& states) {
  TRAIN_CHECK(states.data == nullptr || states.texts != nullptr, "{}: states of no texts", kernel);
  TRAIN_CHECK(!states.extend || (states.data != nullptr && rows.positions != nullptr &&
                                 (rows.seq_len == 1 || rows.count() == 0)),
              "{}: texts go on by single rows at their positions", kernel);
}

template <class Params>
void require_conv(const char* kernel, const Params& p) {
  require_rows(kernel, p.rows);
  TRAIN_CHECK(p.channels >= 1 && p.taps >= 1 && p.taps <= kMostTaps, "{}: {} taps of {} channels",
              kernel, p.taps, p.channels);
  TRAIN_CHECK(p.x_stride >= p.channels && p.y_stride >= p.channels, "{}: strides {} and {} of {}",
              kernel, p.x_stride, p.y_stride, p.channels);
}

void require_scan(const char* kernel, const ScanInputs& p) {
  require_rows(kernel, p.rows);
  require_pointers(kernel, p.rows.count(), p.u, p.delta, p.b, p.c, p.z, p.a_log, p.d, p.delta_bias);
  TRAIN_CHECK(p.channels >= 1 && p.states >= 1 && p.states <= kMostScanStates,
              "{}: {} states of {} channels", kernel, p.states, p.channels);
  TRAIN_CHECK(p.u_stride >= p.channels && p.delta_stride >= p.channels &&
                  p.z_stride >= p.channels && p.b_stride >= p.states,
              "{}: strides {}, {}, {} and {}", kernel, p.u_stride, p.delta_stride, p.z_stride,
              p.b_stride);
}

void require_head_scan(const char* kernel, const HeadScanInputs& p) {
  require_rows(kernel, p.rows);
  require_pointers(kernel, p.rows.count(), p.x, p.b, p.c, p.delta, p.a_log, p.d, p.delta_bias);
  TRAIN_CHECK(
      p.width >= 1 && p.width <= kMostHeadWidth && p.states >= 1 && p.states <= kMostHeadStates,
      "{}: {} channels of {} states", kernel, p.width, p.states);
  TRAIN_CHECK(p.groups >= 1 && p.heads >= 1 && p.heads % p.groups == 0, "{}: {} groups of {} heads",
              kernel, p.groups, p.heads);
  TRAIN_CHECK(p.x_stride >= p.heads * p.width && p.delta_stride >= p.heads, "{}: strides {} and {}",
              kernel, p.x_stride, p.delta_stride);
  TRAIN_CHECK(p.least_step <= p.most_step, "{}: steps from {} to {}", kernel, p.least_step,
              p.most_step);
}

template <class Params>
void require_gated_norm(const char* kernel, const Params& p) {
  require_pointers(kernel, p.rows, p.y, p.z, p.weight, p.out, p.rstd);
  TRAIN_CHECK(p.cols >= 1 && p.groups >= 1 && p.cols % p.groups == 0, "{}: {} groups of {} columns",
              kernel, p.groups, p.cols);
  TRAIN_CHECK(p.y_stride >= p.cols && p.z_stride >= p.cols, "{}: strides {} and {}", kernel,
              p.y_stride, p.z_stride);
}

}  // namespace

void check_params(const CausalConvForwardParams& p) {
  require_conv("causal_conv_forward", p);
  require_pointers("causal_conv_forward", p.rows.count(), p.x, p.weight, p.y);
  require_states("causal_conv_forward", p.rows, p.states);
  TRAIN_CHECK(p.rows.count() == 0 || p.x != p.y, "causal_conv_forward: y is x");
}

void check_params(const CausalConvBackwardParams& p) {
  require_conv("causal_conv_backward", p);
  require_pointers("causal_conv_backward", p.rows.count(), p.x, p.weight, p.dy, p.dx);
  TRAIN_CHECK(p.dx_stride >= p.channels && (p.dx != p.x || p.dx_stride == p.x_stride),
              "causal_conv_backward: dx's stride is {}", p.dx_stride);
}

void check_params(const SelectiveScanForwardParams& p) {
  require_scan("selective_scan_forward", p.in);
  require_pointers("selective_scan_forward", p.in.rows.count(), p.y);
  require_states("selective_scan_forward", p.in.rows, p.states);
  TRAIN_CHECK(p.y_stride >= p.in.channels, "selective_scan_forward: y's stride is {}", p.y_stride);
}

void check_params(const SelectiveScanBackwardParams& p) {
  require_scan("selective_scan_backward", p.in);
  require_pointers("selective_scan_backward", p.in.rows.count(), p.kept, p.y, p.du, p.ddelta, p.dz,
                   p.db, p.dc, p.partial);
  TRAIN_CHECK(p.y_stride >= p.in.channels, "selective_scan_backward: y's stride is {}", p.y_stride);
}

void check_params(const HeadScanForwardParams& p) {
  require_head_scan("head_scan_forward", p.in);
  require_pointers("head_scan_forward", p.in.rows.count(), p.y);
  require_states("head_scan_forward", p.in.rows, p.states);
  TRAIN_CHECK(p.y_stride >= p.in.heads * p.in.width, "head_scan_forward: y's stride is {}",
              p.y_stride);
}

void check_params(const HeadScanBackwardParams& p) {
  require_head_scan("head_scan_backward", p.in);
  require_pointers("head_scan_backward", p.in.rows.count(), p.kept, p.dy, p.dx, p.db, p.dc,
                   p.ddelta, p.partial);
  TRAIN_CHECK(p.y_stride >= p.in.heads * p.in.width && p.dx_stride >= p.in.heads * p.in.width,
              "head_scan_backward: strides {} and {}", p.y_stride, p.dx_stride);
}

void check_params(const GatedNormForwardParams& p) { require_gated_norm("gated_norm_forward", p); }

void check_params(const GatedNormBackwardParams& p) {
  require_gated_norm("gated_norm_backward", p);
  require_pointers("gated_norm_backward", p.rows, p.dy, p.dz);
}

}  // namespace train::kernels
