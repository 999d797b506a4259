//! What the paper sent, what its boards took for it, and what it measured: Bacis, *BlastFunction: an FPGA-as-a-Service system
//! for accelerated serverless computing*, Politecnico di Milano 2019.

use super::Arm;
use anyhow::Result;
use fpga_tests::functions::Function;
use fpga_tests::testbed::invoke::Case;
use std::fmt::{self, Write as _};
use std::time::Duration;

/// Number of functions that share boards.
pub(super) const FUNCTIONS: usize = 5;
/// Number of boards.
pub(super) const BOARDS: usize = 3;

/// The board of each function in tables 6.3, 6.5 and 6.7: the first and the last share B, the second and the fourth A.
pub(super) const SHARED: [usize; FUNCTIONS] = [1, 0, 2, 0, 1];
/// The board of each function that has one for itself.
pub(super) const EXCLUSIVE: [usize; BOARDS] = [0, 1, 2];

/// An accelerator of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum UseCase {
    Sobel,
    Matmul,
    #[value(name = "alexnet")]
    AlexNet,
}

/// A row of arrivals in table 6.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Load {
    Low,
    Medium,
    High,
}

/// A row of tables 6.4, 6.6 and 6.8.
#[derive(Debug, Clone, Copy)]
pub(super) struct Published {
    /// Requests per second.
    pub processed: f64,
    /// Mean latency.
    pub mean_ms: f64,
    /// Utilisation of all boards in percent: 300 if all are in use all the time.
    pub utilisation: f64,
}

impl UseCase {
    /// The function that stands for it.
    pub fn function(self) -> Function {
        match self {
            Self::Sobel => Function::Sobel,
            Self::Matmul => Function::Matmul,
            Self::AlexNet => Function::Cnn,
        }
    }

    /// A request. It is small, so that this machine has time for all; the modelled board takes what it takes for the
    /// paper's request.
    pub fn case(self) -> Result<Case> {
        Case::new(self.function(), self.side(), 1)
    }

    /// Side length of the square picture or matrix of a request.
    pub fn side(self) -> u16 {
        match self {
            Self::Sobel => 64,
            Self::Matmul => 16,
            Self::AlexNet => 67,
        }
    }

    /// Size of the paper's request; `None` if the paper does not tell it.
    pub fn published_size(self) -> Option<&'static str> {
        match self {
            Self::Sobel => Some("1920 x 1080"),
            Self::Matmul | Self::AlexNet => None,
        }
    }

    /// Requests per second for each function (table 6.2); `None` where the paper measured nothing.
    pub fn arrivals(self, load: Load) -> Option<[u32; FUNCTIONS]> {
        match (self, load) {
            (Self::Sobel, Load::Low) => Some([20, 15, 10, 5, 5]),
            (Self::Sobel, Load::Medium) => Some([35, 30, 25, 20, 15]),
            (Self::Sobel, Load::High) => Some([60, 50, 35, 30, 15]),
            (Self::Matmul, Load::Low) => Some([28, 21, 14, 7, 7]),
            (Self::Matmul, Load::Medium) => Some([49, 42, 35, 28, 21]),
            (Self::Matmul, Load::High) => Some([84, 70, 49, 42, 21]),
            (Self::AlexNet, Load::Low) => None,
            (Self::AlexNet, Load::Medium) => Some([6, 3, 3, 3, 3]),
            (Self::AlexNet, Load::High) => Some([9, 9, 6, 6, 3]),
        }
    }

    /// What the paper measured.
    pub fn published(self, load: Load, arm: Arm) -> Option<Published> {
        let (processed, mean_ms, utilisation) = match (self, load, arm) {
            (Self::Sobel, Load::Low, Arm::Exclusive) => (43.98, 23.62, 63.87),
            (Self::Sobel, Load::Medium, Arm::Exclusive) => (85.29, 24.28, 122.88),
            (Self::Sobel, Load::High, Arm::Exclusive) => (112.77, 25.15, 157.60),
            (Self::Sobel, Load::Low, _) => (52.24, 24.76, 71.70),
            (Self::Sobel, Load::Medium, _) => (119.15, 22.25, 161.81),
            (Self::Sobel, Load::High, _) => (152.27, 22.62, 202.03),
            (Self::Matmul, Load::Low, Arm::Exclusive) => (60.49, 21.12, 50.87),
            (Self::Matmul, Load::Medium, Arm::Exclusive) => (106.84, 22.81, 103.22),
            (Self::Matmul, Load::High, Arm::Exclusive) => (121.85, 24.25, 122.97),
            (Self::Matmul, Load::Low, _) => (76.96, 12.55, 43.49),
            (Self::Matmul, Load::Medium, _) => (174.90, 11.57, 98.53),
            (Self::Matmul, Load::High, _) => (262.73, 10.69, 144.18),
            (Self::AlexNet, Load::Low, _) => return None,
            (Self::AlexNet, Load::Medium, Arm::Exclusive) => (11.91, 94.29, 96.22),
            (Self::AlexNet, Load::High, Arm::Exclusive) => (23.57, 91.74, 189.82),
            (Self::AlexNet, Load::Medium, _) => (17.88, 132.89, 124.68),
            (Self::AlexNet, Load::High, _) => (29.81, 124.52, 202.08),
        };
        Some(Published { processed, mean_ms, utilisation })
    }

    /// The kernels, with the number of launches of a request and the time of each.
    fn kernels(self) -> &'static [(&'static str, u32, Duration)] {
        const fn launch(name: &'static str, count: u32, micros: u64) -> (&'static str, u32, Duration) {
            (name, count, Duration::from_micros(micros))
        }
        match self {
            Self::Sobel => &const { [launch("sobel", 1, 14_530)] },
            Self::Matmul => &const { [launch("matmul", 1, 6_440)] },
            Self::AlexNet => {
                &const {
                    [
                        launch("convolve", 5, 9_000),
                        launch("normalise", 2, 500),
                        launch("pool", 3, 500),
                        launch("dense", 3, 1_000),
                    ]
                }
            }
        }
    }

    /// Time of a request on the board.
    pub fn board_time(self) -> Duration {
        self.kernels().iter().map(|(_, count, time)| *time * *count).sum()
    }

    /// Where the time of a request comes from.
    pub fn source(self) -> &'static str {
        match self {
            Self::Sobel => {
                "the native latency of a picture of 1920 x 1080 pixels (6.1.2), transfers included"
            }
            Self::Matmul => {
                "utilisation by processed requests of native matmult-3 under low load, 8.82 % / 13.70 rq/s (table 6.5): the \
                 paper tells neither the size of the matrices nor the native latency for it"
            }
            Self::AlexNet => {
                "the native latency, of which an overhead of 15.79 ms is 31.27 % (table 6.1); 89 % of it in convolutions, which is our \
                 split"
            }
        }
    }

    /// A model of the paper's board, as the device manager reads it.
    pub fn model(self) -> String {
        let mut text = format!("board = \"BlastFunction's board for {self}, by its published times\"\n");
        for (name, _, time) in self.kernels() {
            let _ = write!(text, "\n[[kernel]]\nname = \"{name}\"\nlaunch = \"{}us\"\n", time.as_micros());
        }
        text
    }
}

impl fmt::Display for UseCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sobel => "Sobel",
            Self::Matmul => "matrix product",
            Self::AlexNet => "AlexNet",
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_requests_are_those_that_the_paper_has() {
        assert_eq!(UseCase::Sobel.board_time(), Duration::from_micros(14_530));
        let matmul = 0.0882 / 13.70;
        assert!((UseCase::Matmul.board_time().as_secs_f64() - matmul).abs() < 1e-5);
        let alexnet = 0.01579 / 0.3127;
        assert!((UseCase::AlexNet.board_time().as_secs_f64() - alexnet).abs() < 1e-5);
    }
}
