"""ROUTES: from what the memories ask for to a circuit, or to the obstacle that stands in the way.

One file per route, or per family of them, with a dictionary ROUTES of its own. To add a route, write its file and list
it below.

| route | memories | layers | heads | what limits it |
|---|---|---|---|---|
| one-layer (lin, log) | lags, kernels | 1 | shared by all memories | the precision wall: mass grows by 4 bits per lag |
| rotary | lags | 1 | one per lag | the window, a power of 2 |
| rotary | lags, pointers, kernels | K + 2 | one per memory of a level | nothing: any lag, any length |
| t5 | lags | 1 | one per lag | one bucket per lag, up to 2,048 |
| bias-table | lags, kernels | 1 | two per kernel | the same, and the kernel's tail beyond |
| depth | lags, kernels | farthest lag / step | heads of one short shift | rounding adds up over layers |
| chain | lags, pointers, kernels | T + K | 1 | layers: it attains the capacity bound |
| match | matches, lags, kernels | hops + 3 | one per match | the bits of a logit: a million tokens in float32 |
| lin-tmx, lin-dp, log-tmx, log-dp | lags, pointers | K + 2 | several per memory | the precision wall |
| lin-dp-direct, lin-tmx-direct | the same, lags affine in the present token | K + 1 | several per memory | the precision wall |
| rotary-deep, lin-dp-deep, log-dp-deep | lags, pointers | M + 1 | those of one memory | layers: one memory each |

K counts nested levels; the paper's L = K + 1 + 1{M >= K + 1} is K + 2 where the levels are as many as K says.
"""
