#pragma once

// nccl.h includes it; nothing of it is used.
