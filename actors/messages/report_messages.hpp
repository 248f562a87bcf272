#pragma once

#include <caf/allowed_unsafe_message_type.hpp>

// Between conductor and reporter.
namespace train::actors {

/// Conductor -> reporter, and back when everything is written.
struct CloseReport {};
struct ReportDrained {};

}  // namespace train::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::CloseReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(train::actors::ReportDrained)
